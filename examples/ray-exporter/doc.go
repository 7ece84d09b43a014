// Package rayexporter holds exporter functions of Ray Serve in Python, and their test. It
// proves that a service in Go exports by such a function unchanged, in a process of its own.
//
//   - guide has the files of Anyscale's tracing guide for Ray Serve, as it prints them:
//     exporter.py (Honeycomb), exporter_dd.py (Datadog) and exporter_dev.py (console);
//   - requirements.txt pins the packages of these exporters; `make python` installs them.
//
// The runner is python/servetrace/runner.py of this repository. There is no Go code here.
// Open guide/exporter_dd.py first.
package rayexporter
