package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the peer's user at the time of connect, from LOCAL_PEERCRED.
func peerUID(conn *net.UnixConn) (int, error) {
	uid := -1
	err := controlSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err == nil {
			uid = int(cred.Uid)
		}
		return err
	})
	return uid, err
}
