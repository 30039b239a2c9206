"""Write the page with all texts: `python -m tests.messages`."""

from .page import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
