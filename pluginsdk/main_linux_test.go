package pluginsdk

import (
	"math"
	"os/exec"
	"testing"
)

// The end of a process is awaited, not guessed: not before it, and not by
// looking again and again.
func TestProcessEnd(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	await := processEnd(cmd.Process.Pid)
	told, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		close(told)
		await()
	}()
	<-told
	select {
	case <-ended:
		t.Error("it returned while the process was there")
	default:
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended // a zombie is enough: nobody has waited for it
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// If there is no such process, or it cannot be awaited, the watch polls.
func TestProcessEndOfNone(t *testing.T) {
	for _, pid := range []int{0, -1, math.MaxInt32} {
		processEnd(pid)()
	}
}
