package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// PeerCredentials are transport credentials for a Unix socket that carry no
// encryption and let nobody in but the user that this process runs as, and
// root: the kernel says who is at the other end. They serve both ends.
func PeerCredentials() credentials.TransportCredentials { return peerCredentials{} }

type peerCredentials struct{}

// peerInfo tells gRPC what the connection is worth: local, and nobody else's.
type peerInfo struct{ credentials.CommonAuthInfo }

// AuthType names the check.
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

// CheckPeer is the check of PeerCredentials by itself: nil if the process at
// the other end runs as the user that this one runs as, or as root.
func CheckPeer(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("peer of a %T is unknown: only Unix sockets are served", conn)
	}
	uid, err := peerUID(unix)
	if err != nil {
		return fmt.Errorf("ask for the peer's user: %w", err)
	}
	if self := os.Geteuid(); uid != self && uid != 0 {
		return fmt.Errorf("peer runs as user %d, this process as %d: refused", uid, self)
	}
	return nil
}

// controlSocket runs f on the descriptor behind conn and gives its error.
func controlSocket(conn *net.UnixConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	outer := raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(outer, inner)
}
