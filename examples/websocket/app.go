package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/servetrace/servetrace/serving"
)

// protocol is the subprotocol that clients must request.
const protocol = "chat.v1"

// app connects the two deployments. A conversation occupies a slot of Chat until it
// ends, and a slot of Model during each reply only.
func app() *serving.App {
	model := serving.NewDeployment("Model", nil)
	chat := Chat{serving.AddFunction(model, "reply", reply)}

	mux := http.NewServeMux()
	mux.Handle("GET /chat", serving.HandlerFunc(chat.Talk))
	return serving.NewApp("chat", serving.NewDeployment("Chat", mux, serving.WithMaxOngoingRequests(1000)),
		serving.WithDeployments(model), serving.WithRequestTimeout(0)) // a conversation has no time limit
}

// Chat handles conversations.
type Chat struct {
	reply *serving.Handle[string, string]
}

// Talk answers each message with a reply of the model. It ends when the client closes
// the socket or leaves. This ends the request's context and with it a current call of
// the model.
func (c Chat) Talk(w http.ResponseWriter, r *http.Request) error {
	// Accept refuses requests with the Origin of another site, with status 403.
	s, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil {
		return nil // Accept has answered the client
	}
	defer func() { _ = s.CloseNow() }()
	if s.Subprotocol() != protocol {
		return s.Close(websocket.StatusPolicyViolation, "ask for the subprotocol "+protocol)
	}
	for {
		kind, message, err := s.Read(r.Context())
		if err != nil {
			return err // the runtime checks whether this was an orderly close
		}
		if kind != websocket.MessageText {
			return s.Close(websocket.StatusUnsupportedData, "texts only")
		}
		answer, err := c.reply.Call(r.Context(), string(message))
		if err != nil {
			return err
		}
		if err := s.Write(r.Context(), websocket.MessageText, []byte(answer)); err != nil {
			return err
		}
	}
}

// reply stands for a model.
func reply(_ context.Context, message string) (string, error) {
	return fmt.Sprintf("%s? Tell me more.", strings.TrimRight(message, ".!?")), nil
}
