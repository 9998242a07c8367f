package report

import (
	"iter"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// SessionGroup is what the WebSocket sessions of one flow were.
type SessionGroup struct {
	Flow  string `json:"flow"`
	N     int    `json:"n"`
	Turns int    `json:"turns"`
	// ClosedByClient and ClosedByServer count who closed first; NoCloseFrame the
	// sessions whose connection ended without one.
	ClosedByClient int `json:"closed_by_client"`
	ClosedByServer int `json:"closed_by_server"`
	NoCloseFrame   int `json:"no_close_frame"`
	// Unattributed is how many sessions had sound that belongs to no turn.
	Unattributed int           `json:"unattributed"`
	DurationS    stats.Summary `json:"duration_s"`
	IdleS        stats.Summary `json:"idle_s"`
	// PingMS is over the sessions' median round trips.
	PingMS stats.Summary `json:"ping_ms"`
	// InputAudioS is the client's sound of all sessions, nil where none sends any.
	InputAudioS *float64 `json:"input_audio_s"`
}

// gathered collects one flow's sessions.
type gathered struct {
	SessionGroup
	duration, idle, ping []float64
}

// AddSessions adds the table of sessions. An error that the iterator yields
// counts as an unreadable line.
func (r *Report) AddSessions(sessions iter.Seq2[*timeline.Session, error]) {
	groups := map[string]*gathered{}
	for s, err := range sessions {
		if err != nil {
			r.Unreadable++
			if len(r.Problems) < maxProblems {
				r.Problems = append(r.Problems, err.Error())
			}
			continue
		}
		if groups[s.Flow] == nil {
			groups[s.Flow] = &gathered{SessionGroup: SessionGroup{Flow: s.Flow}}
		}
		groups[s.Flow].add(s)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		g.DurationS, g.IdleS, g.PingMS = stats.Summarize(g.duration), stats.Summarize(g.idle), stats.Summarize(g.ping)
		r.Sessions = append(r.Sessions, g.SessionGroup)
	}
}

func (g *gathered) add(s *timeline.Session) {
	g.N++
	g.Turns += s.Turns
	switch s.Close.By {
	case "client":
		g.ClosedByClient++
	case "server":
		g.ClosedByServer++
	}
	if slices.Contains(s.Flags, "no_close_frame") {
		g.NoCloseFrame++
	}
	if s.UnattributedChunks > 0 {
		g.Unattributed++
	}
	g.duration = append(g.duration, s.DurationMS/1e3)
	g.idle = append(g.idle, s.IdleMS/1e3)
	if s.PingRTTMS != nil {
		g.ping = append(g.ping, *s.PingRTTMS)
	}
	if s.InputAudioS != nil {
		sum := *s.InputAudioS
		if g.InputAudioS != nil {
			sum += *g.InputAudioS
		}
		g.InputAudioS = &sum
	}
}
