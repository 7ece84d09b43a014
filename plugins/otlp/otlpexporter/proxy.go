package otlpexporter

import (
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// proxyOf gives the proxy for a URL, nil for none.
type proxyOf func(*url.URL) (*url.URL, error)

// proxies reads what every plugin has of the host's environment, by the rules of
// http.ProxyFromEnvironment, which would keep what it read first.
func proxies(getenv func(string) string) proxyOf {
	first := func(names ...string) string {
		for _, name := range names {
			if text := getenv(name); text != "" {
				return text
			}
		}
		return ""
	}
	config := httpproxy.Config{
		HTTPProxy:  first("http_proxy", "HTTP_PROXY"),
		HTTPSProxy: first("https_proxy", "HTTPS_PROXY"),
		NoProxy:    first("no_proxy", "NO_PROXY"),
	}
	return config.ProxyFunc()
}

// of is for an http.Transport.
func (p proxyOf) of(req *http.Request) (*url.URL, error) { return p(req.URL) }

// via is the proxy on the way to the endpoint, as people may see it; empty for
// none. gRPC asks for the one of HTTPS, whether there is TLS or not.
func (c *settings) via() string {
	to := c.endpoint.url
	if c.protocol == protocolGRPC {
		to = &url.URL{Scheme: "https", Host: c.endpoint.host}
	}
	if to.Host == "" {
		return ""
	}
	proxy, err := c.proxy(to)
	if err != nil || proxy == nil {
		return ""
	}
	return shownURL(&url.URL{Scheme: proxy.Scheme, Host: proxy.Host})
}
