package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the process at the other end, as LOCAL_PEERCRED recorded it at the time of
// connect. The system does not report its process id there.
func peerOf(conn *net.UnixConn) (Peer, error) {
	var peer Peer
	err := controlSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err == nil {
			peer.UID = int(cred.Uid)
		}
		return err
	})
	return peer, err
}
