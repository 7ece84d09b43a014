package peer

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// envHold has the test binary start a peer, say its process id, and wait to be
// killed.
const envHold = "PEER_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(envHold) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}
