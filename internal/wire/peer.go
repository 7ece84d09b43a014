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

// peerInfo describes the connection to gRPC as private, because it is a Unix socket.
type peerInfo struct{ credentials.CommonAuthInfo }

// AuthType returns the name of the check of the peer, for gRPC.
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
	if _, err := CheckPeer(conn); err != nil {
		return nil, nil, err
	}
	return conn, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// Peer is the process at the other end of a Unix socket, as the kernel reports it.
type Peer struct {
	// UID is the user id of the process. PID is its process id, or 0 if the system does not
	// report it.
	UID, PID int
}

// CheckPeer returns the process at the other end of conn. It returns an error if conn is not a
// Unix socket, or if the process runs neither as the user of this process nor as root.
func CheckPeer(conn net.Conn) (Peer, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("cannot check the peer of a %T: want a Unix socket", conn)
	}
	peer, err := peerOf(unix)
	if err != nil {
		return Peer{}, fmt.Errorf("get the peer's user: %w", err)
	}
	if self := os.Geteuid(); peer.UID != self && peer.UID != 0 {
		return Peer{}, fmt.Errorf("peer runs as user %d, this process as %d: refused", peer.UID, self)
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
