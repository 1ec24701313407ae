#!/bin/sh
# Succeeds if the program at $1 was built. It is not run.
test -x "$1"
