"""The command servetrace of the package: python -m servetrace status."""

import os
import sys

from servetrace.relay import NO_COMMAND, find_binary

binary = find_binary(os.environ) or "servetrace"
# The first argument tells the command how to name itself in advice.
name = f"{os.path.basename(sys.executable or 'python')} -m servetrace"
try:
    os.execv(binary, [name, *sys.argv[1:]])
except OSError:
    sys.exit(f"{binary}: {NO_COMMAND}")
