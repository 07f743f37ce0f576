"""Stage 1: the layout of a safetensors file, and the bits of a bf16 number."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, VIOLET, Figure


def safetensors_file() -> Figure:
    figure = Figure(
        "safetensors-file", 800, 330, "A safetensors file of 158 bytes with two tensors",
        """
        Bytes 0 to 7 hold the header's length, 120, as a 64-bit little-endian integer. Bytes 8 to 127 hold the
        header, JSON text padded with spaces. The data area begins at byte 128: tensor a, float32 of shape [2,
        3], takes its offsets 0 to 24, which are the file's bytes 128 to 151; tensor b, bf16 of shape [3], takes
        its offsets 24 to 30, the file's bytes 152 to 157.
        """,
    )  # fmt: skip
    figure.text(20, 28, "byte of the file", 13, anchor="start", color=FAINT)
    edges = {20: "0", 140: "8", 480: "128", 670: "152", 780: "158"}
    for x, label in edges.items():
        figure.text(x, 50, label, 13, mono=True, anchor="start" if x == 20 else "middle")
    figure.box(20, 62, 120, 56, "header length\n120", fill=ORANGE, size=13)
    figure.box(140, 62, 340, 56, "header: 120 bytes of JSON", fill=VIOLET)
    figure.box(480, 62, 190, 56, "tensor a\n24 bytes", fill=BLUE)
    figure.box(670, 62, 110, 56, "tensor b\n6 bytes", fill=GREEN)
    figure.text(20, 134, "78 00 00 00 00 00 00 00 (hexadecimal)", 12, mono=True, anchor="start", color=FAINT)
    figure.text(20, 160, "offset in the data area", 13, anchor="start", color=FAINT)
    figure.line((480, 118), (480, 150), color=FAINT, dashed=True)
    figure.line((670, 118), (670, 150), color=FAINT, dashed=True)
    figure.line((780, 118), (780, 150), color=FAINT, dashed=True)
    for x, label in ((480, "0"), (670, "24"), (780, "30")):
        figure.text(x, 160, label, 13, mono=True)
    figure.box(20, 186, 760, 92, fill=GREY, radius=6)
    figure.text(
        36, 232,
        '{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},\n'
        ' "b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]}}\n'
        "and 7 spaces, so that the data area begins at a multiple of 8",
        14, mono=True, anchor="start",
    )  # fmt: skip
    figure.text(
        400, 304, "position in the file = 8 + header length + data offset; for b: 8 + 120 + 24 = 152", 14, color=FAINT
    )
    return figure


def bf16_bits() -> Figure:
    figure = Figure(
        "bf16-bits", 800, 370, "bf16 is the upper half of float32",
        """
        The float32 nearest to pi is 0x40490FDB: sign 0, exponent 10000000, fraction 10010010000111111011011.
        The upper 16 bits, 0x4049, are a bf16 number: sign, 8 exponent bits, 7 fraction bits. The lower 16 bits,
        0x0FDB, are rounded away. Below, a number line: 0x4049 is 3.140625, 0x404A is 3.15625, half-way lies
        3.1484375. Pi lies below the half, so it rounds down to 0x4049.
        """,
    )  # fmt: skip
    bits, width, left = f"{0x40490FDB:032b}", 23.5, 24
    fills = [PINK] + [ORANGE] * 8 + [BLUE] * 7 + [GREY] * 16
    figure.text(left, 26, "float32 nearest to pi: 0x40490FDB", anchor="start", bold=True)
    figure.cells(left, 70, width, 36, list(bits), fills, mono=True)
    figure.text(left + width / 2, 56, "sign", 12, color=FAINT)
    figure.text(left + 5 * width, 56, "exponent, 8 bits", 12, color=FAINT)
    figure.text(left + 20.5 * width, 56, "fraction, 23 bits", 12, color=FAINT)
    figure.line((left + 16 * width, 60), (left + 16 * width, 148), thick=2)
    figure.bracket(left, left + 16 * width - 4, 114, "kept: 0x4049, a bf16 number", size=14)
    figure.bracket(
        left + 16 * width + 4, left + 32 * width, 114, "rounded away: 0x0FDB, less than half (0x8000)", size=14
    )
    low, high, y = 100.0, 700.0, 240
    figure.line((low - 40, y), (high + 40, y), thick=2)
    pi = low + (high - low) * (3.14159274 - 3.140625) / 0.015625
    for x, below in ((low, "0x4049\n3.140625"), ((low + high) / 2, "half-way\n3.1484375"), (high, "0x404A\n3.15625")):
        figure.line((x, y - 8), (x, y + 8), thick=2)
        figure.text(x, y + 34, below, 14, mono=True)
    figure.line((pi, y - 12), (pi, y + 4), thick=3, color="#b3261e")
    figure.arrow((pi, y - 18), (low + 4, y - 18), color="#b3261e", thick=1.6)
    figure.text(pi + 10, y - 30, "pi = 3.1415927 rounds down", anchor="start", color="#b3261e")
    figure.text(
        400, 318, "Neighbouring bf16 numbers near pi are 2^-6 = 0.015625 apart: one step of the 7-bit fraction."
    )
    figure.text(400, 344, "Exactly half-way, the neighbour whose last bit is 0 wins.", color=FAINT)
    return figure
