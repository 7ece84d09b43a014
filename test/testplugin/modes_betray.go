package testplugin

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// betrayed returns the forms in which a plugin may show a secret, by name.
func betrayed(secret string) map[string]string {
	inJSON, _ := json.Marshal(secret) // a string can always be encoded
	return map[string]string{
		"plain": secret, "json": string(inJSON), "quoted": fmt.Sprintf("%q", secret), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"url":    (&url.URL{Scheme: "https", User: url.UserPassword("u", secret), Host: "h"}).String(),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "user": base64.StdEncoding.EncodeToString([]byte("bob:" + secret)),
		"token": base64.URLEncoding.EncodeToString([]byte("ab" + secret + "c")), "hex": hex.EncodeToString([]byte(secret)), "dump": fmt.Sprintf("%X", secret),
		"joined": "a" + secret + secret + "b", "map": fmt.Sprint(map[string][]string{"h": {secret}}), "ansi": "\x1b[31m" + secret + "\x1b[0m",
	}
}

// betray shows the secrets of its configuration and of the variable BETRAYED in its
// start environment in every output of a plugin: its description, warnings, log,
// standard output, processor names, errors, and finally a panic.
func betray(string) {
	start := os.Getenv("BETRAYED")
	s := spec(record)
	s.Name, s.Version, s.Description = "name-"+start, "v-"+start, "is "+start
	s.Processors = []pluginsdk.NewProcessor{func(ctx context.Context, setup pluginsdk.Setup) (pluginsdk.Processor, error) {
		var told struct{ Secret, Start string }
		if err := setup.DecodeConfig(&told); err != nil {
			return nil, err
		}
		drop := func(_ context.Context, b *pluginsdk.Batch) error {
			for span := range b.Spans() {
				if strings.HasPrefix(span.Name(), "filtered") {
					span.Drop()
				}
			}
			return nil
		}
		return pluginsdk.ProcessorFunc("by-"+hex.EncodeToString([]byte(told.Secret)), drop)(ctx, setup)
	}}
	s.Exporter = func(_ context.Context, setup pluginsdk.Setup) (pluginsdk.Exporter, error) {
		var told struct{ Secret, Start string }
		if err := setup.DecodeConfig(&told); err != nil {
			return nil, err
		}
		for form, text := range betrayed(told.Secret) {
			setup.Warn(text, form+" "+text)
			setup.Log.Error("error "+text, "value", text, text, form)
			say(os.Stderr, form+": "+text+"\n")
			say(os.NewFile(1, "stdout"), form+": "+text+"\n")
			line, _ := json.Marshal(map[string]string{"@level": "warn", "@message": text, "@module": text, text: text})
			say(os.Stderr, string(line)+"\n")
		}
		calls := 0
		forms := betrayed(told.Secret)
		return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
			calls++
			for form, text := range forms {
				delete(forms, form)
				if calls%2 == 0 {
					return pluginsdk.Partial(b.Len(), form+" "+text)
				}
				return pluginsdk.Permanent(fmt.Errorf("%s %s", form, text))
			}
			all := strings.Builder{}
			for form, text := range betrayed(told.Secret) {
				all.WriteString(form + " " + text + "\n")
			}
			panicAlone(all.String())
			return nil
		}), nil
	}
	pluginsdk.Main(s)
}

// panicAlone panics in a goroutine without recover.
func panicAlone(text string) {
	go func() { panic(text) }()
	select {}
}
