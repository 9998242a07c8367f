package mock

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

// job is a video job.
type job struct {
	model         string
	created       time.Time
	ready         time.Time
	failed        bool
	size, seconds string
}

// image answers POST /v1/images/generations with one small PNG.
func (x *exchange) image() plan.Answer {
	if x.req.bad != nil {
		return x.badBody()
	}
	x.id = "img_gen-" + x.hex(16)
	size := x.req.str("size")
	size = cmp.Or(size, "1024x1024")
	g := plan.Generation{Items: []plan.Item{{Wait: x.script.FirstDelay()}}}
	return x.whole(&g, fmt.Sprintf(`{"created":%d,"data":[{"b64_json":"%s"}],"output_format":"png","size":%s,"metrics":{"stage_durations":{"diffusion":0.02},"peak_memory_mb":0.0}}`,
		time.Now().Unix(), encode(x.picture()), quote(size)))
}

// picture is a PNG of 16 by 16 seeded points.
func (x *exchange) picture() []byte {
	img := image.NewGray(image.Rect(0, 0, 16, 16))
	for i := range 256 {
		img.SetGray(i%16, i/16, color.Gray{Y: uint8(x.rng.UintN(256))})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil { // a bytes.Buffer does not fail
		return nil
	}
	return b.Bytes()
}

// movie is an MP4 in name: the boxes ftyp and mdat around seeded bytes.
func (x *exchange) movie() []byte {
	box := func(kind string, body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
		return append(append(b, kind...), body...)
	}
	body := make([]byte, 4096)
	for i := range body {
		body[i] = byte(x.rng.UintN(256))
	}
	return append(box("ftyp", []byte("isom\x00\x00\x02\x00isomiso2mp41")), box("mdat", body)...)
}

// videoJob answers POST /v1/videos: the job at once, done after job_ms.
func (x *exchange) videoJob() plan.Answer {
	if x.req.bad != nil {
		return x.badBody()
	}
	x.id = "video_gen-" + x.hex(32)
	now := time.Now()
	j := job{
		model: x.req.str("model"), created: now, ready: now.Add(script.Millis(x.script.JobMS)),
		failed: x.f.ErrorAt.IsSet(), size: x.req.str("size"), seconds: x.req.str("seconds"),
	}
	x.f.ErrorAt = script.Point{} // it is the job that fails, not this answer
	j.model = cmp.Or(j.model, "mock-omni")
	j.size = cmp.Or(j.size, "720x1280")
	j.seconds = cmp.Or(j.seconds, "4")
	s := x.c.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[x.id] = j
	return plan.JSON(http.StatusOK, j.json(x.id, "queued", 0))
}

func (j job) json(id, status string, progress int) string {
	return fmt.Sprintf(`{"id":%q,"object":"video","model":%s,"status":%q,"progress":%d,"created_at":%d,"size":%s,"seconds":%s}`,
		id, quote(j.model), status, progress, j.created.Unix(), quote(j.size), quote(j.seconds))
}

// videoGet answers GET /v1/videos/{id} and /v1/videos/{id}/content.
func (x *exchange) videoGet() plan.Answer {
	id, content := strings.CutSuffix(strings.TrimPrefix(x.req.path, "/v1/videos/"), "/content")
	s := x.c.srv
	s.mu.Lock()
	j, ok := s.jobs[id]
	s.mu.Unlock()
	x.id = id
	ready := !time.Now().Before(j.ready)
	switch {
	case !ok:
		return plan.JSON(http.StatusNotFound, `{"detail":"Video not found"}`)
	case j.failed && ready:
		return x.refusal(http.StatusInternalServerError, "")
	case content && !ready:
		return plan.JSON(http.StatusNotFound, `{"detail":"Video is not ready"}`)
	case content:
		return plan.Answer{Status: 200, ContentType: "video/mp4", Whole: true, Form: "whole", End: plan.Complete, Pieces: []plan.Piece{{Data: x.movie(), Raw: plan.NotRaw}}}
	case ready:
		return plan.JSON(http.StatusOK, j.json(id, "completed", 100))
	}
	return plan.JSON(http.StatusOK, j.json(id, "in_progress", 50))
}

// videoSync answers POST /v1/videos/sync: the bytes after job_ms.
func (x *exchange) videoSync() plan.Answer {
	if x.req.bad != nil {
		return x.badBody()
	}
	x.id = "video_sync-" + x.hex(16)
	model := x.req.str("model")
	model = cmp.Or(model, "mock-omni")
	return plan.Answer{
		Status: 200, ContentType: "video/mp4", Whole: true, Late: true, Form: "whole", End: plan.Complete,
		Fields: plan.Fields(
			"x-request-id", x.id, "x-model", strings.NewReplacer("\r", "", "\n", "").Replace(model),
			"x-inference-time-s", fmt.Sprintf("%.3f", x.script.JobMS/1000),
			"x-stage-durations", `{"diffusion":0.02}`, "x-peak-memory-mb", "0.0",
		),
		Pieces: []plan.Piece{{Wait: script.Millis(x.script.JobMS), Data: x.movie(), Raw: plan.NotRaw}},
	}
}
