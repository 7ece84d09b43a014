package servetrace

import (
	"context"

	"github.com/servetrace/servetrace/admin"
)

// startAdmin starts the listener for operators, if there is to be one. It is
// the first thing that runs and the last that ends, so that a start that takes
// long and a stop can be watched.
func (s *service) startAdmin(ctx context.Context) error {
	if !s.cfg.Admin.Enabled() {
		return nil
	}
	server, err := admin.NewServer(s.cfg.Admin, s.host.Stats, s.log)
	if err != nil { // Validate has seen it
		return err
	}
	s.closers = append(s.closers, server.Shutdown)
	s.admin = server
	return server.Start(ctx)
}
