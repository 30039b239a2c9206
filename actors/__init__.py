"""The actors: supervisor, handle, lane, run and journal; and the API that an application embeds."""
