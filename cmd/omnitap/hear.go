package main

import (
	"context"
	"crypto/tls"
	"net/url"
	"time"

	"github.com/omnitap/omnitap/exporter/audiofile"
	"github.com/omnitap/omnitap/exporter/twin"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// hear has the sound of streams listened to by whoever was asked for, and returns
// where records go.
func (s *service) hear(f *serveFlags, trust *tls.Config, sink timeline.Sink) (timeline.Sink, error) {
	var all []timeline.Listen
	if f.SaveAudio != "" {
		saver, err := audiofile.New(f.SaveAudio, s.log)
		if err != nil {
			return nil, exitWith(exitEnvironment, err)
		}
		s.saver = saver
		all = append(all, saver.Listen)
	}
	if f.Twin.Sample > 0 {
		u, err := url.Parse(f.Upstream)
		if err != nil {
			return nil, exitWith(exitUsage, err)
		}
		s.twins = newTwins(twin.New(f.Twin, u, trust), sink)
		all = append(all, s.twins.listen)
		f.Tap.Timeline.Keep = s.twins.runner.Wants
		sink = s.twins
	}
	f.Tap.Timeline.Listen = listenAll(all)
	return sink, nil
}

// twinLimit bounds how long a shutdown waits for twins that are under way.
const twinLimit = 5 * time.Second

// hush ends the listening: every record has gone on, every file is written.
func (s *service) hush() error {
	if s.twins != nil {
		ctx, cancel := context.WithTimeout(context.Background(), twinLimit)
		defer cancel()
		s.twins.close(ctx)
	}
	if s.saver != nil {
		return s.saver.Close()
	}
	return nil
}
