"""Who does it: supervisor, handle, lane, run and journal, and the API that an application embeds."""
