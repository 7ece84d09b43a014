"""Runs the guide's applications on real Ray Serve: python ray_serve.py OUTPUT.json EXPORTER

It sends one request to each, and writes the answer's status and the span files. EXPORTER
is the import path of an exporter function, such as that of Ray Serve's own: DEFAULT.
Everything is on 127.0.0.1, in a temporary folder; no process is left behind.
"""

import glob
import importlib
import json
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = [os.path.join(HERE, "testdata"), os.path.join(HERE, "..", "..", "examples", "ray-exporter", "guide")]
sys.path[:0] = [os.path.join(HERE, "..", "ray"), *MODULES]

import record  # of test/ray

DEFAULT = "ray.serve._private.tracing_utils:default_tracing_exporter"


def span_files(folder):
    """Gives the text of each span file, and removes it from the next answer."""
    files = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, "r+") as f:
            files[os.path.basename(path)] = f.read()
            f.truncate(0)
    return {name: text for name, text in files.items() if text.strip("\0")}


def errors(folder):
    """Gives the lines of Serve's logs that name an exception."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*.log"))):
        with open(path) as f:
            found += re.findall(r"(?m)^\w+Error: .*$", f.read())
    return found


def run(place):
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions

    [port] = record.free_ports(1)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=place, _node_ip_address="127.0.0.1")
    try:
        serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
        folder = os.path.join(ray._private.worker._global_node.get_logs_dir_path(), "serve", "spans")

        def request(*applications):
            for name, module, attribute, prefix in applications:
                serve.run(getattr(importlib.import_module(module), attribute), name=name, route_prefix=prefix)
            span_files(folder)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as response:
                    status = response.status
            except urllib.error.HTTPError as e:
                status = e.code
            time.sleep(2)  # the spans of the proxy end after the answer
            files = span_files(folder)
            for name, *_ in applications:
                serve.delete(name)
            return {"Status": status, "Files": files, "Errors": errors(os.path.dirname(folder))}

        hello = request(("my_app", "serve_hello", "app", "/"))
        guide = request(
            ("app2", "serve_call_external_service", "downstream_app", "/downstream"),
            ("app", "serve_call_external_service", "upstream_app", "/"),
        )
        serve.shutdown()
    finally:
        ray.shutdown()
    return {"Version": ray.__version__, "Hello": hello, "Guide": guide}


def main(output, exporter):
    place = tempfile.mkdtemp(prefix="seeds")
    os.environ |= {
        "HOME": place,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(MODULES),
        "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": DEFAULT if exporter == "DEFAULT" else exporter,
        "RAY_SERVE_TRACING_SAMPLING_RATIO": "1.0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    runpy.run_path(os.path.join(HERE, "testdata", "sitecustomize.py"))  # Ray's other processes import it
    try:
        text = json.dumps(run(place))
        late = time.monotonic() + 60
        while (left := record.left_behind(place)) and time.monotonic() < late:
            time.sleep(1)
        if left:
            sys.exit(f"processes of Ray are left: {left}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    with open(output, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
