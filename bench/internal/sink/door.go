package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// door is where OTLP/HTTP comes in. While it is shut connections are refused,
// as those to a collector that has ended; the port stays the sink's, so that no
// client that tries again and again is given it for its own end.
type door struct {
	address string
	handler http.Handler
	release func() // gives the port back

	mu     sync.Mutex
	server *http.Server // nil: it is shut
	served chan error
}

// newDoor makes one that is open.
func newDoor(handler http.Handler) (*door, error) {
	d := &door{handler: handler}
	var err error
	if d.release, err = keepPort(&d.address); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func (d *door) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", d.address)
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	server := &http.Server{Handler: d.handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	d.server, d.served = server, served
	go func() { served <- server.Serve(l) }() // ended by shut
	return nil
}

// shutGrace is how long requests may take that were there before.
const shutGrace = time.Second

// shut refuses connections from now on. Requests that are being taken are
// answered first, so that none is counted that its client has to repeat.
func (d *door) shut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutGrace)
	defer cancel()
	_ = d.server.Shutdown(ctx)
	_ = d.server.Close()
	d.server = nil
	if err := <-d.served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// end is its last shutting.
func (d *door) end() error {
	defer d.release()
	return d.shut()
}

// takeDoor opens or shuts it.
func (d *door) takeDoor(w http.ResponseWriter, r *http.Request) {
	change := d.open
	if r.URL.Query().Get("open") == "false" {
		change = d.shut
	}
	if err := change(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
