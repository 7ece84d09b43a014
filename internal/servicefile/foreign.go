package servicefile

import "slices"

// foreignKeys are keys of Ray's and Anyscale's files that have no meaning for this process.
type foreignKeys struct {
	// why is the reason for which this process does not use the keys. It is a part of the
	// error or warning about such a key.
	why string
	// fatal makes each of these keys an error, because a service that ignored it would give
	// clients other answers, or export spans in another way. If it is not set, a key only causes
	// a warning, so that a service file for a cluster can be used here.
	fatal bool
	paths []string
}

const (
	appsAreCode = "the applications of a Go service are compiled in"
	onCluster   = "this is one process, not a cluster"
	noTLS       = "this service speaks plain HTTP; end TLS in the proxy before it"
	onLog       = "the log goes to standard error, with fixed fields"
)

var foreign = []foreignKeys{
	{why: appsAreCode, paths: []string{
		"import_path", "runtime_env", "working_dir", "requirements", "py_modules", "py_executable", "excludes",
		pathApp + ".import_path", pathApp + ".runtime_env",
	}},
	{why: onCluster, paths: []string{
		"image_uri", "containerfile", "ray_version", "registry_login_secret", "compute_config", "cloud", "project", "tags",
		"query_auth_token_enabled", "ray_gcs_external_storage_config", "proxy_location", "target_capacity", "external_scaler_enabled",
		"http_options.location", "http_options.num_cpus",
		pathApp + ".host", pathApp + ".port", pathApp + ".external_scaler_enabled", pathApp + ".autoscaling_policy",
		pathDeployment + ".ray_actor_options", pathDeployment + ".placement_group_bundles",
		pathDeployment + ".placement_group_strategy", pathDeployment + ".max_replicas_per_node",
	}},
	{why: onLog, paths: []string{
		"logging_config.logs_dir", "logging_config.additional_log_standard_attrs",
		pathApp + ".logging_config", pathDeployment + ".logging_config",
	}},
	{why: "the applications of a Go service are compiled in; use user_config", paths: []string{pathApp + ".args"}},
	{why: "there is no autoscaler; use num_replicas", paths: []string{pathDeployment + ".autoscaling_config"}},
	{why: "there is one kind of router", paths: []string{pathDeployment + ".request_router_config"}},
	{why: "the gRPC services of a Go service are compiled in", paths: []string{"grpc_options.grpc_servicer_functions"}},

	{fatal: true, why: noTLS, paths: []string{
		"http_options.ssl_keyfile", "http_options.ssl_certfile", "http_options.ssl_keyfile_password", "http_options.ssl_ca_certs",
	}},
	{fatal: true, why: "set the variables when you start the process, and remove this key", paths: []string{"env_vars"}},
	{fatal: true, why: "use route_prefix, or strip the path in the proxy before this service", paths: []string{"http_options.root_path"}},
	{fatal: true, why: "middleware is Python code; wrap the handlers of the application", paths: []string{"http_options.middlewares"}},
}

// foreignKey returns the group with a key, or nil if the key is in none.
func foreignKey(path string) *foreignKeys {
	i := slices.IndexFunc(foreign, func(k foreignKeys) bool { return slices.Contains(k.paths, path) })
	if i < 0 {
		return nil
	}
	return &foreign[i]
}
