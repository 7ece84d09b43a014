"""A plugin whose answer is the name of a batch's first span: for tests of every
answer that servetrace.plugin knows. What it delivers is in ANSWERS_FILE, one span
id a line."""

import logging
import os
import subprocess
import sys
import time

import grpc

from servetrace import plugin
from servetrace.plugin import ConfigError, Partial, Permanent, RetryAfter


class BackEndError(grpc.RpcError):
    """As a call of grpc to a back end raises it."""

    def __init__(self, code, text, trailing=()):
        self._code, self._text, self._trailing = code, text, trailing

    def code(self):
        return self._code

    def details(self):
        return self._text

    def trailing_metadata(self):
        return self._trailing


def configure(setup):
    print("a stray print")  # must end in the log
    os.write(1, b"a stray write\n")
    mode = setup.env.get("ANSWERS_CONFIGURE", "")
    if mode == "warn":
        setup.warn("ANSWERS_CONFIGURE", "is odd")
    elif mode == "errors":
        setup.error("a", "is wrong")
        setup.error("b.c", "is wrong too")
    elif mode == "raise":
        raise ConfigError("ANSWERS_CONFIGURE", "is 'raise': want another")
    elif mode == "bug":
        {}["no such key"]
    elif mode == "exit":
        sys.exit("no licence")
    elif mode == "child":
        child = subprocess.Popen(["sleep", "300"])
        setup.log.info("child", extra={"child": child.pid, "@level": "mine"})


def deliver(batch):
    name = next((span.name for _, _, span in batch.spans()), "")
    if name == "permanent":
        raise Permanent("the back end does not know this token")
    if name == "retry":
        raise RetryAfter("the back end is restarting", 2.5)
    if name == "broken":
        raise ConnectionError("connection reset")
    if name == "code":
        raise BackEndError(grpc.StatusCode.PERMISSION_DENIED, "not you")
    if name == "throttled":
        details = plugin._retry_info(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much", 3)
        raise BackEndError(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much", (("grpc-status-details-bin", details),))
    if name == "bug":
        return {}["no such key"]
    if name == "other":
        return False
    if name == "exit":
        sys.exit(3)
    if name == "words":
        raise Permanent("\udcff\u00e4\n" + "x" * 100_000)
    if name in ("deaf", "slow"):
        logging.info(name + " begins")
    if name == "deaf":
        time.sleep(300)
    if name == "slow" and batch.given_up.wait(1.0):
        raise TimeoutError("given up")
    if name == "hang":
        batch.given_up.wait()
        raise TimeoutError("given up")
    return Partial(1, "name too long") if name == "partial" else None


def export(batch):
    answer = deliver(batch)
    batch.filter("by-name", lambda span: span.name != "drop")
    if "ANSWERS_FILE" in os.environ:
        with open(os.environ["ANSWERS_FILE"], "a") as file:
            file.write("".join(span.span_id.hex() + "\n" for _, _, span in batch.spans()))
    return answer


plugin.main("answers", "1", env=["ANSWERS_*"], configure=configure, export=export)
