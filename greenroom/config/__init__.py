"""The configuration: `greenroom.toml`, then variables `GREENROOM_…`, then flags, each over the one before.

`settings` says what there is, `kinds` what each value must look like, `sources` where it is written, and
`reading` puts them together and tells every mistake at once.
"""
