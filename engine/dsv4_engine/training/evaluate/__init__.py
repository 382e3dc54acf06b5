"""How good a byte model is: its text by held-out text, its drafts by what the serving engine accepts of them.

`python -m dsv4_engine.training.evaluate MODEL CORPUS_FOLDER` measures with the engine that serves, so that what a model
card says is what a server shows.
"""
