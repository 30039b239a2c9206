"""Write the vectors again: `python -m tests.conformance`."""

import json

from .stories import STORIES
from .vectors import FOLDER, as_json

for name, story in STORIES.items():
    start, events, end = story.tell()
    vector = {"about": story.about, "snapshot": as_json(start), "events": as_json(events)}
    text = json.dumps(vector | {"expected": as_json(end)}, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
