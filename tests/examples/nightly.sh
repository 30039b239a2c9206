#!/bin/sh
# Start the nightly flow for a date, by default for today. A second start for the same date is the same run.
set -eu
date=${1:-$(date +%F)}
exec greenroom flow run nightly --handle nightly --on-conflict queue \
    --request-id "nightly-$date" -p "{\"date\": \"$date\"}"
