"""`python -m tests.pictures` writes the pictures that are drawn from the code."""

from .drawn import FOLDER, pictures

for name, picture in pictures().items():
    (FOLDER / name).parent.mkdir(exist_ok=True)
    (FOLDER / name).write_text(picture, encoding="utf-8")
