"""A submission's engine outside grading: generate, chat, and a server with OpenAI's interface."""
