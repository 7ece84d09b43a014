package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// PeerCredentials returns transport credentials for a Unix socket, for either end. They
// do not encrypt. They accept a peer only if it runs as the user of this process or as
// root, as reported by the kernel.
func PeerCredentials() credentials.TransportCredentials { return peerCredentials{} }

type peerCredentials struct{}

// peerInfo reports to gRPC that the connection is local and private.
type peerInfo struct{ credentials.CommonAuthInfo }

// AuthType returns the name of the check.
func (peerInfo) AuthType() string { return "peer-uid" }

func (peerCredentials) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return checkPeer(conn)
}

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return checkPeer(conn)
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer-uid"}
}

func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

func (peerCredentials) OverrideServerName(string) error { return nil }

func checkPeer(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := CheckPeer(conn); err != nil {
		return nil, nil, err
	}
	return conn, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// CheckPeer performs the check of PeerCredentials. It returns nil if the peer of conn
// runs as the user of this process or as root.
func CheckPeer(conn net.Conn) error {
	peer, err := PeerOf(conn)
	if err != nil {
		return err
	}
	if self := os.Geteuid(); peer.UID != self && peer.UID != 0 {
		return fmt.Errorf("peer runs as user %d, this process as %d: refused", peer.UID, self)
	}
	return nil
}

// Peer is the process that connected to a Unix socket, as the kernel reports it.
type Peer struct {
	// UID is its user. PID is its process id, or 0 if the system does not report it.
	UID, PID int
}

// PeerOf returns the peer of conn, which must be a Unix socket.
func PeerOf(conn net.Conn) (Peer, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("cannot check the peer of a %T: want a Unix socket", conn)
	}
	peer, err := peerOf(unix)
	if err != nil {
		return Peer{}, fmt.Errorf("get the peer's user: %w", err)
	}
	return peer, nil
}

// controlSocket calls f with the descriptor of conn and returns its error.
func controlSocket(conn *net.UnixConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	outer := raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(outer, inner)
}
