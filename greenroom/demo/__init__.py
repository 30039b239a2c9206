"""The demo: a handful of accounts whose media are mirrored from a small site, on a real engine and gateway.

`site` is the other side, `mirroring` the job, `story` what happens, `stage` what people see of it.
"""
