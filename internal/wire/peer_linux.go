package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the process at the other end, as SO_PEERCRED recorded it at the time of connect.
func peerOf(conn *net.UnixConn) (Peer, error) {
	var peer Peer
	err := controlSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			peer = Peer{UID: int(cred.Uid), PID: int(cred.Pid)}
		}
		return err
	})
	return peer, err
}
