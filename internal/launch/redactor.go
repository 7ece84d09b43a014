package launch

import (
	"context"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/wire"
)

// Redactor takes secrets out of what a plugin sends by RPC. The zero Redactor
// takes nothing out. It never changes: safe for concurrent use.
type Redactor struct{ secrets *redactor }

// NewRedactor makes one of texts that must not be shown, as Command.Secrets.
func NewRedactor(secrets []string) Redactor { return Redactor{newRedactor(secrets)} }

// Text is a text with "<redacted>" in the place of the secrets. It is to be
// called before a text is cut, which may cut a secret.
func (r Redactor) Text(text string) string { return r.secrets.text(text) }

// Texts are texts without the secrets.
func (r Redactor) Texts(texts []string) []string {
	if r.secrets == nil {
		return texts
	}
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = r.Text(text)
	}
	return shown
}

// redactErrors keeps secrets out of the errors of calls: a plugin that quotes its
// back end may quote its own key.
func redactErrors(secrets *redactor) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		if err == nil || secrets == nil {
			return err
		}
		return wire.Reword(err, secrets.text)
	})
}
