"""The configuration: `greenroom.toml`, then variables `GREENROOM_…`, then flags; each overrides the previous.

`settings` defines the settings, `kinds` checks the values, and `sources` reads the file and the variables.
`reading` combines them and reports all errors together.
"""
