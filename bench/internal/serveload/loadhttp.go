package serveload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// httpClient is a connection of HTTP/1.1 that repeats a request. It reads as little of
// an answer as possible, so that its cost is mostly the kernel's.
type httpClient struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	want    []byte // the body
	got     []byte
}

func getRequest(host string) []byte {
	return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: servetrace-bench\r\n\r\n", host)
}

func dialHTTP(ctx context.Context, addr string, request, want []byte) (client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &httpClient{conn: conn, in: bufio.NewReader(conn), request: request, want: want, got: make([]byte, len(want))}, nil
}

// Close implements [io.Closer].
func (c *httpClient) Close() error { return c.conn.Close() }

// run implements [client].
func (c *httpClient) run(clock *clock) error {
	for {
		began, more := clock.begin()
		if !more {
			return nil
		}
		if _, err := c.conn.Write(c.request); err != nil {
			return err
		}
		status, err := c.answer()
		if err != nil {
			return err
		}
		if status != "200" || !bytes.Equal(c.got, c.want) {
			clock.wrong("answered with status %s and %q", status, c.got)
			continue
		}
		clock.answered(began)
	}
}

// answer reads a response, with its body into c.got.
func (c *httpClient) answer() (status string, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	const before = len("HTTP/1.1 ")
	if len(line) < before+3 {
		return "", fmt.Errorf("status line %q", line)
	}
	status = "200"
	if code := line[before : before+3]; string(code) != status {
		status = string(code)
	}
	length := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return status, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return status, err
			}
		}
	}
	if length < 0 {
		return status, errors.New("an answer without a length")
	}
	if cap(c.got) < length {
		c.got = make([]byte, length)
	}
	c.got = c.got[:length]
	_, err = io.ReadFull(c.in, c.got)
	return status, err
}
