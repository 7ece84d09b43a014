package pluginsdk

import (
	"strings"
	"testing"
)

// TestDecodeConfigShowsNoSecret: an error goes to the service's log.
func TestDecodeConfigShowsNoSecret(t *testing.T) {
	for _, document := range []string{
		"headers: x-api-key=hunter2", "headers: [hunter2]", "auth: {token: hunter2}", "password: *hunter2",
		"API_Keys: hunter2", "{tokens: {a: hunter2}}",
	} {
		var into struct {
			Headers map[string]string `yaml:"headers"`
			Auth    struct {
				Token int `yaml:"token"`
			} `yaml:"auth"`
			Password string         `yaml:"password"`
			APIKeys  []string       `yaml:"API_Keys"`
			Tokens   map[string]int `yaml:"tokens"`
		}
		err := Setup{Config: []byte(document)}.DecodeConfig(&into)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q gives %v", document, err)
		}
	}
}
