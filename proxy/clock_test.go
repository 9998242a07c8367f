package proxy

import (
	"testing"
	"time"
)

// TestC38StepOfTheWallClock: receive stamps are the wall clock's. When it is set
// between a request and the first chunk, the chunk still lies behind the request,
// at its own time, and the step is counted.
func TestC38StepOfTheWallClock(t *testing.T) {
	const think = int64(100 * time.Millisecond)
	for _, c := range []struct {
		name string
		step time.Duration
	}{
		{"none", 0},
		{"back 2 s", -2 * time.Second},
		{"ahead 2 s", 2 * time.Second},
		{"back 50 ms", -50 * time.Millisecond},
		{"ahead 50 ms", 50 * time.Millisecond},
		{"back an hour", -time.Hour},
		{"ahead an hour", time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk := newClock()
			right := clk.wallOffset()
			// the test cannot set the machine's clock: the clock believes the offset from
			// before the step, and the stamps are today's
			clk.offset.Store(right - int64(c.step))
			now := clk.now()
			request := now - think
			in, ok := clk.received(request+right-int64(c.step), request)
			if !ok || in != request {
				t.Fatalf("received(request) = %d, %v, want %d", in, ok, request)
			}
			chunk := now - int64(10*time.Microsecond)
			got, ok := clk.received(chunk+right, now)
			if d := got - in; ok && (d < think-int64(time.Millisecond) || d > think+int64(time.Millisecond)) {
				t.Errorf("the chunk lies %v behind the request, want %v", time.Duration(d), time.Duration(think))
			}
			clk.sample(clk.now()) // at the latest a second later
			if got, want := clk.steps.Load(), map[bool]int64{false: 0, true: 1}[c.step != 0]; got != want {
				t.Errorf("steps = %d, want %d", got, want)
			}
		})
	}
}

// TestC38StampsInTheFutureAreNone: what cannot be right is refused, not guessed.
func TestC38StampsInTheFutureAreNone(t *testing.T) {
	clk := newClock()
	now := clk.now()
	if got, ok := clk.received(now+clk.wallOffset()+int64(time.Minute), now); ok {
		t.Errorf("received(a minute ahead) = %d, true, want false", got)
	}
	if got, ok := clk.received(1, now); ok {
		t.Errorf("received(1970) = %d, true, want false", got)
	}
}
