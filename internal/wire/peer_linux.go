package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the peer's user at the time of connect, from SO_PEERCRED.
func peerUID(conn *net.UnixConn) (int, error) {
	uid := -1
	err := controlSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			uid = int(cred.Uid)
		}
		return err
	})
	return uid, err
}
