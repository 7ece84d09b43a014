package processors

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// ordinaryTexts are usual texts of spans without a secret.
var ordinaryTexts = []string{
	// Ids, hashes, names of things.
	"1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7",
	"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
	"ot=th:c;rv:4d4e4f505152ff", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	"da39a3ee5e6b4b0d3255bfef95601890afd80709", "W/\"5d8c72a5edda8d6a:3239\"", "01ARZ3NDEKTSV4RRFFQ69G5FAV",
	"507f1f77bcf86cd799439011", "req_8fK2mZq1xT", "i-0abcdef1234567890", "arn:aws:iam::123456789012:role/reader",
	"arn:aws:secretsmanager:eu-west-1:123456789012:secret:db", "projects/p/secrets/db/versions/3",
	"checkout-7d9f8b6c5d-x2kqp", "registry.example/shop/cart:1.4.2@sha256:9f86d081884c7d659a2feaa0c55ad015",
	"default#HelloWorld#3npxyudx", "23eec2ff096fc93aea943783f1a232b9b59a8ce587b0358e", "ip-10-0-0-7.eu-west-1.compute.internal",
	"urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "mongodb://db.example:27017/shop", "10.1.2.3:5432", "[::1]:8080",
	"http://[::1]:8080/a@b", "https://shop.example/u/@ann?at=@", "4111 2222 3333 4445", "1.22.333.4444",
	// Spans' names, routes, agents.
	"POST /api/v1/password/reset", "GET /tokens/{id}", "grpc.health.v1.Health/Check", "SELECT shop.orders",
	"PUT /users/{user_id}/password", "auth.login", "TokenService/Refresh", "validate session", "key lookup",
	"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36",
	"text/html; charset=utf-8", "application/json", "gzip, deflate, br", "max-age=3600, must-revalidate",
	"/search?q=boots&page=2&sort=price", "/items?key=size&code=de&state=new&id=5", "utm_source=mail&utm_campaign=may",
	// Statements.
	"SELECT id, email FROM users WHERE password = ? AND tenant = $1", "SELECT password_hash FROM users WHERE id = 5",
	"UPDATE users SET password = $2, token = $3 WHERE id = $1", "INSERT INTO users (name, password) VALUES (?, ?)",
	"INSERT INTO users (name, password) VALUES ($1, $2)", "CREATE TABLE t (id int, password varchar(64) NOT NULL)",
	"SELECT * FROM tokens WHERE expires_at < now() AND kind = 'refresh'", "ALTER TABLE users DROP COLUMN pin",
	"SELECT 'it''s' AS note FROM orders WHERE state = 'open' LIMIT 10", "db.users.find({\"name\": \"?\", \"age\": {\"$gt\": 3}})",
	"GET session:42", "HGETALL cart:7",
	// Counts and settings that have telling words in their names.
	"prompt_tokens=812, completion_tokens=64, total_tokens=876", "{\"usage\":{\"prompt_tokens\":812,\"completion_tokens\":64}}",
	"max_tokens: 4096", "token_count=5", "pin_count=4", "gpio pin=17", "author=ann", "authors: [ann, bob]",
	"authority: shop.example", "auth=none", "auth_type=oauth2", "auth: required",
	"{\"password\":null,\"token\":false}", "keyboard: de",
	"key=size", "primary_key: id", "partition_key=eu-7", "sort key: price", "monkey=5", "keys: 7", "signature: (II)V",
	"session started", "session_count=5", "design=flat", "signal=SIGTERM", "code=200", "otp: sent",
	"cvss: 7.5", "passed=true", "passenger=ann", "compass=n", "bypass: on", "OLDPWD=/root", "PWD=)",
	// Prose.
	"missing bearer token", "invalid password for user ann", "the flag --password is required", "token expired",
	"unexpected token } in JSON at position 5", "basic authentication failed", "key not found: size",
	"authorization failed: no role", "digest mismatch",
	"wrong pin", "connection refused: dial tcp 10.0.0.7:5432: connect: connection refused", "rate limit of 50 tokens per second",
	"cookie consent shown", "curl: (7) failed to connect", "login took -p 5", "usage: mysql [-p] db", "ls -la /tmp", "tar -xpf a.tar",
	// Stack traces, logs, markup, paths.
	"Traceback (most recent call last):\n  File \"/srv/app/auth.py\", line 12, in check_token\n    raise TokenError(\"expired\")\nTokenError: expired",
	"java.lang.IllegalStateException: no\n\tat com.shop.auth.TokenFilter.check(TokenFilter.java:88)\n\tat java.base/java.lang.Thread.run(Thread.java:833)",
	"goroutine 12 [running]:\nmain.(*secretStore).load(0xc0000b4000, {0x7f2c, 0x5})\n\t/src/main.go:42 +0x1d",
	`C:\temp\new\x64\users`, `^\d+\/[a-z]+$`, `{"path":"\/api\/v1","name":"J\u00fcrgen"}`, "a &amp; b &lt; c", "\x1b[31mred\x1b[0m",
	"<order id=\"5\"><item key=\"size\" value=\"42\"/></order>", "<p class=\"author\">Ann</p>", "level=info ts=2026-01-02T03:04:05Z msg=ok",
	"你好，世界：好", "2026-01-02T03:04:05.678Z", "1700000000000000000", "3.141592653589793", "0x7ffee3b4c000",
}

// ordinaryKeys are keys of attributes that have telling words, and plain values.
var ordinaryKeys = map[string]*commonpb.AnyValue{
	"gen_ai.usage.input_tokens": intValue(812), "gen_ai.usage.output_tokens": intValue(64), "gen_ai.request.max_tokens": intValue(4096),
	"llm.token_count.prompt": intValue(812), "tokens_used": textValue("812"), "tokens": intValue(5), "author": textValue("ann"),
	"git.commit.author.name": textValue("Ann Bee"), "authors": textValue("ann, bob"), "pin_count": intValue(4), "mapping": textValue("x1234567"),
	"monkey": textValue("george7george"), "db.operation.primary_key": textValue("id4567890"), "http.auth": textValue("oauth2"),
	"rpc.auth": textValue("mtls"), "code.signature": textValue("(II)V"), "signature": textValue("rsa-sha256"), "design": textValue("v2design7"),
	"passenger": textValue("ann1234567"), "k8s.pod.name": textValue("checkout-7d9f8b6c5d-x2kqp"), "keyboard": textValue("qwertz105keys"),
	"messaging.kafka.message.key": textValue("order-0012345"), "cache.key": textValue("cart:12345678"), "session_count": intValue(5),
}

// TestRedactKeepsOrdinaryTelemetry: texts without a secret are unchanged in every field.
func TestRedactKeepsOrdinaryTelemetry(t *testing.T) {
	p := construct(t, Redact(RedactConfig{}), pluginsdk.Setup{})
	texts := ordinaryTexts
	for i := range 64 { // pictures, and other bytes in base64 and hexadecimal
		noise := newGenerator(uint64(i)).id(900)
		texts = append(texts, "data:image/png;base64,"+base64.StdEncoding.EncodeToString(noise), hex.EncodeToString(noise[:32]),
			base64.RawURLEncoding.EncodeToString(noise[:33]))
	}
	check := func(span *tracepb.Span, what string) {
		encoded := marshal(t, ofSpan(span))
		out, err := process(t, p, encoded)
		if err != nil || !bytes.Equal(out, encoded) {
			t.Errorf("%q (%v) leaves as\n%v", what, err, spansOf(unmarshal(t, out)))
		}
	}
	for _, text := range texts {
		kvs := []*commonpb.KeyValue{{Key: "note", Value: textValue(text)}}
		list := &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{textValue("ls"), textValue("-la"), textValue(text)}}}}
		check(&tracepb.Span{
			Name: text, Status: &tracepb.Status{Message: text}, Attributes: append(kvs, &commonpb.KeyValue{Key: "list", Value: list}),
			Events: []*tracepb.Span_Event{{Name: text, Attributes: kvs}}, Links: []*tracepb.Span_Link{{Attributes: kvs}},
		}, text)
	}
	for key, value := range ordinaryKeys {
		check(&tracepb.Span{Attributes: []*commonpb.KeyValue{{Key: key, Value: value}}}, key)
	}
	check(&tracepb.Span{Name: strings.Repeat("word ", 10_000)}, "a long text")
}
