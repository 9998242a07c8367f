package session

import (
	"slices"
	"time"
)

// step is one thing that happens some time after the step before was due.
type step struct {
	wait time.Duration
	do   func()
}

// track is a list of steps that runs beside the others.
type track struct {
	due   time.Time // of the step before
	steps []step
	turn  *turn // its end is the track's
}

const century = 100 * 365 * 24 * time.Hour

func (tr *track) next() time.Time { return tr.due.Add(min(tr.steps[0].wait, century)) }

// play starts a track.
func (s *session) play(t *turn, steps ...step) {
	if len(steps) > 0 {
		s.tracks = append(s.tracks, &track{due: time.Now(), steps: steps, turn: t})
	}
}

// next is the track whose step is due first, nil if none runs.
func (s *session) next() *track {
	if len(s.tracks) == 0 {
		return nil
	}
	return slices.MinFunc(s.tracks, func(a, b *track) int { return a.next().Compare(b.next()) })
}

func (s *session) until(tr *track) time.Duration {
	if tr == nil {
		return century
	}
	return time.Until(tr.next())
}

// step does what is due on a track.
func (s *session) step(tr *track) {
	tr.due = tr.next()
	do := tr.steps[0].do
	tr.steps = tr.steps[1:]
	if len(tr.steps) == 0 {
		s.tracks = slices.DeleteFunc(s.tracks, func(o *track) bool { return o == tr })
	}
	do()
}

// drop ends the tracks of a turn.
func (s *session) drop(t *turn) {
	s.tracks = slices.DeleteFunc(s.tracks, func(o *track) bool { return o.turn == t })
}
