"""Stage 0: the threads of a launch, and the way of the data through it."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, RED, Figure


def grid_of_threads() -> Figure:
    n, block = 10, 4
    figure = Figure(
        "grid-of-threads", 800, 330, "Three blocks of four threads add ten elements",
        """
        The arrays have n = 10 elements. The grid has 3 blocks of 4 threads each. Block 0 holds the threads with
        i = 0 to 3, block 1 those with i = 4 to 7, block 2 those with i = 8 to 11. Thread i computes element i.
        Threads 10 and 11, the last two of block 2, have no element: the guard i < n keeps them from the arrays.
        """,
    )  # fmt: skip
    width, left, gap = 52, 118, 16
    figure.text(14, 66, "block", anchor="start", color=FAINT)
    figure.text(14, 102, "threadIdx.x", anchor="start", color=FAINT)
    figure.text(14, 142, "i", anchor="start", color=FAINT)
    figure.text(14, 212, "out[i]", anchor="start", color=FAINT)
    figure.text(left, 24, "i = blockIdx.x * blockDim.x + threadIdx.x,   blockDim.x = 4", mono=True, anchor="start")
    for i in range(12):
        number, thread = divmod(i, block)
        x = left + i * width + number * gap
        if thread == 0:
            figure.box(x - 5, 46, block * width + 10, 122, fill=GREY, radius=6)
            figure.text(x + block * width / 2, 66, f"blockIdx.x = {number}", mono=True)
        fill = BLUE if i < n else ORANGE
        figure.box(x, 84, width, 36, str(thread), fill=fill, mono=True)
        figure.box(x, 124, width, 36, str(i), fill=fill, mono=True, bold=True)
        if i < n:
            figure.arrow((x + width / 2, 162), (x + width / 2, 194))
            figure.box(x, 194, width, 36, str(i), fill=GREEN, mono=True)
    x = left + 10 * width + 2 * gap
    figure.text(x + width, 212, "no element:\ni < n is false", 13, color=RED)
    figure.bracket(left, left + 10 * width + 2 * gap, 236, "n = 10 elements, 40 bytes")
    figure.text(
        400, 296,
        "Blocks needed: (n + 3) / 4 in whole numbers = 13 / 4 = 3, which is 12 threads for 10 elements.", 14,
    )  # fmt: skip
    return figure


def host_and_device() -> Figure:
    figure = Figure(
        "host-and-device", 800, 350, "The way of the data through one launch",
        """
        Left the memory of the host, with the NumPy arrays x, y and out. Right the memory of the GPU, with three
        allocations. Step 1: mem_alloc reserves the three allocations. Step 2: memcpy_htod copies x and y to the
        GPU. Step 3: the kernel reads x_gpu and y_gpu and writes out_gpu; the call returns at once. Step 4:
        memcpy_dtoh waits for the kernel and copies out_gpu back into out.
        """,
    )  # fmt: skip
    figure.box(20, 40, 220, 220, fill=GREY, radius=8)
    figure.text(130, 62, "host: CPU and its memory", bold=True)
    figure.box(520, 40, 260, 220, fill=GREY, radius=8)
    figure.text(650, 62, "device: GPU and its memory", bold=True)
    for number, name in enumerate(("x", "y", "out")):
        y = 88 + number * 56
        fill = GREEN if name == "out" else BLUE
        figure.box(40, y, 180, 36, f"{name}   (NumPy)", fill=fill, mono=True)
        figure.box(540, y, 110, 36, f"{name}_gpu", fill=fill, mono=True)
    for y in (106, 162):
        figure.arrow((224, y), (536, y))
    figure.text(380, 92, "2  memcpy_htod(x_gpu, x)", mono=True)
    figure.text(380, 148, "2  memcpy_htod(y_gpu, y)", mono=True)
    figure.arrow((536, 218), (224, 218))
    figure.text(380, 204, "4  memcpy_dtoh(out, out_gpu)", mono=True)
    figure.box(690, 88, 76, 148, "3\n\nkernel", fill=ORANGE, mono=True, radius=6)
    figure.arrow((650, 106), (690, 106))
    figure.arrow((650, 162), (690, 162))
    figure.arrow((690, 218), (650, 218))
    figure.text(650, 282, "1  mem_alloc(n * 4), three times", mono=True)
    figure.text(
        400, 322,
        "Step 3 only starts the kernel and returns; step 4 waits until it has finished, then copies.", 14, color=FAINT,
    )  # fmt: skip
    return figure
