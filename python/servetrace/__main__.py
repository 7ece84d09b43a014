"""The command servetrace of the package: python -m servetrace status."""

import os
import sys

from servetrace.relay import NO_COMMAND, find_binary

binary = find_binary(os.environ) or "servetrace"
try:
    os.execv(binary, ["servetrace", *sys.argv[1:]])
except OSError:
    sys.exit(f"{binary}: {NO_COMMAND}")
