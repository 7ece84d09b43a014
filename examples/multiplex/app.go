package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"text/template"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/multiplexing"
)

// files holds the models, any number of them.
//
//go:embed models
var files embed.FS

// app returns the application: two replicas, each with room for two models.
func app() *serving.App {
	models := multiplexing.New(load, multiplexing.WithMaxModels(2), multiplexing.WithUnload(unload))
	return serving.NewApp("multiplex",
		serving.NewDeployment("Greeter", greeter(models), serving.WithReplicas(2)))
}

// greeter answers with the model in the request's header serve_multiplexed_model_id.
func greeter(models *multiplexing.Models[*template.Template]) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		model, err := models.Get(r.Context())
		switch {
		case errors.Is(err, multiplexing.ErrNoModelID):
			http.Error(w, err.Error(), http.StatusBadRequest)
			return nil
		case errors.Is(err, fs.ErrNotExist):
			http.Error(w, fmt.Sprintf("no model %q", serving.ModelID(r.Context())), http.StatusNotFound)
			return nil
		case err != nil:
			return err
		}
		return model.Execute(w, r.URL.Query().Get("name"))
	}
}

// load returns a model; a real one would take time to load. The id comes from a client:
// the embedded file system prevents access to other files.
func load(ctx context.Context, id string) (*template.Template, error) {
	text, err := files.ReadFile("models/" + id + ".txt")
	if err != nil {
		return nil, err
	}
	slog.InfoContext(ctx, "model loaded", "model_id", id)
	return template.New(id).Parse(string(text))
}

// unload would free a model's resources; here there are none.
func unload(ctx context.Context, id string, _ *template.Template) {
	slog.InfoContext(ctx, "model unloaded", "model_id", id)
}
