package tap_test

import "testing"

// TestSessionsVideoChat: vLLM-Omni's video chat, which has no ids (trap 21).
func TestSessionsVideoChat(t *testing.T) {
	const (
		config = `1 c session.config {"model":"m","modalities":["text","audio"]}
			2 c video.frame {"frame_id":1,"data":"/9j/"}
			3 s video.frame.ack {"frame_id":1}` + "\n"
		plain = "1 c session.config {\"model\":\"m\"}\n"
	)
	runSessions(t, []sessionCase{
		{
			name: "two queries", path: pathVideo, script: config + `
				5 c audio.chunk {"data":"@zero:1600"}
				10 #q c video.query {"text":"what?"}
				20 s response.start
				30 #x s response.text.delta {"delta":"A cat"}
				31 s video.frames.consumed {"request_id":"video-1","frame_ids":[1]}
				40 s response.text.done {"text":"A cat"}
				50 #a s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				55 s response.text.delta {"delta":"."}
				60 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				70 #e s response.audio.done
				100 #q2 c video.query {"text":"and?","audio_data":"@zero:800"}
				110 s response.start
				120 s response.text.delta {"delta":"No"}
				130 s response.output_audio.delta {"data":"@wav24000:480","format":"wav"}
				131 s response.text.done {"text":"No"}
				140 s response.output_audio.done
				150 c video.done
				160 s session.done
				160 s fin
				161 c close
				162 s rst`,
			want: `
				turn success/done src=video.query in=@10 offsets.t_in=>q offsets.t_body=>q ttft=20 ttfa=40 jct=60 offsets.t_text=>x offsets.t_audio=>a offsets.t_term=>e text=6 text_units=2 ` +
				`samples=960 chunks=2 rate=24000 audio.container=wav server_request_id=video-1 flow=video_chat dialect=vllm-omni input.audio_s=0.1
				turn success/done in=@100 offsets.t_in=>q2 ttft=20 ttfa=30 jct=40 samples=480 input.audio_s=0.05
				session turns=2 states.success=2 flow=video_chat close_seen_up=0 close.by=server close.transport=rst unknown_events=0 close_seen_down?no%close`,
		},
		{
			name: "text-only queries", path: pathVideo, script: `1 c session.config {"model":"m","modalities":["text"]}
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				40 #e s response.text.done {"text":"A cat"}
				60 c video.query {"text":"what?"}
				70 s response.start
				80 s response.text.done {"text":"A dog"}
				90 c video.done
				91 s session.done
				91 s fin`,
			want: `
				turn success/done ttft=20 jct=30 offsets.t_term=>e ttfa? text=5 modalities=["text"]
				turn success/done in=@60 ttft=20 jct=20 text=5 text_units=1
				session turns=2`,
		},
		{
			name: "the next query interrupts", path: pathVideo, script: config + `
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				50 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				60 #q2 c video.query {"text":"and?"}
				70 s response.start
				80 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				90 s response.audio.done
				95 s fin`,
			want: `
				turn client-cancelled/interrupted by=client samples=480 ttfa=40
				turn success/done in=@60 offsets.t_in=>q2 ttfa=20 jct=30 samples=480
				session turns=2`,
		},
		{
			name: "interrupted between text and the sound it owes", path: pathVideo, script: config + `
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				40 s response.text.done {"text":"A cat"}
				60 c video.query {"text":"and?"}
				70 s response.start
				80 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				90 s response.audio.done
				95 s fin`,
			want: `
				turn client-cancelled/interrupted text=5 ttfa?
				turn success/done in=@60
				session turns=2`,
		},
		{
			name: "a query overtaken unbegun", path: pathVideo, script: config + `
				10 c video.query {"text":"what?"}
				20 c video.query {"text":"and?"}
				30 s response.start
				80 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				90 s response.audio.done
				95 s fin`,
			want: `
				turn client-cancelled/interrupted in=@10
				turn success/done in=@20 ttfa=60
				session turns=2`,
		},
		{
			name: "nobody said what is wanted, and only text comes", path: pathVideo, script: plain + `
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				40 #e s response.text.done {"text":"A cat"}
				100 c video.query {"text":"and?"}
				110 s response.start
				120 s response.text.delta {"delta":"A dog"}
				130 #e2 s response.text.done {"text":"A dog"}
				200 c video.done
				201 s session.done
				201 s fin`,
			want: `
				turn success/done jct=30 offsets.t_term=>e
				turn success/done in=@100 jct=30 offsets.t_term=>e2
				session turns=2`,
		},
		{
			name: "error, then text.done", path: pathVideo, script: config + `
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.text.delta {"delta":"A"}
				35 #x s error {"message":"Query processing failed"}
				40 s response.text.done {"text":"A"}
				60 c video.query {"text":"what?"}
				70 s response.start
				75 s response.text.done {"text":"A dog"}
				76 s error {"message":"Query processing failed"}
				100 c video.query {"text":"what?"}
				110 s response.start
				120 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				130 s response.audio.done
				140 s fin`,
			want: `
				turn server-error/server_error ev.error_offset=>x text=1
				turn server-error/server_error
				turn success/done in=@100 ttfa=20
				session turns=3 errors=0`,
		},
		{
			name: "an error that no query asked for", path: pathVideo, script: config + `
				4 c audio.chunk {"data":"@zero:160"}
				5 s error {"message":"audio buffer overflow"}
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				40 s response.audio.done
				60040 s error {"message":"Idle timeout"}
				60041 s fin`,
			want: `
				turn success/done
				session turns=1 errors=2 +errors +no_close_frame`,
		},
		{ // the server starts turns by itself
			name: "aura", path: pathVideo, script: config + `
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				40 s response.text.done {"text":"A cat"}
				50 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				60 s response.audio.done
				70 s response.start
				80 s response.text.delta {"delta":"A dog"}
				90 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				95 s response.audio.done
				99 s fin`,
			want: `
				turn success/done in?nothing%asked ttft?nothing%asked ttfa?nothing%asked samples=480
				turn success/done in?nothing%asked samples=480
				session turns=2`,
		},
		{ // nobody interrupted it
			name: "aura goes on to the next turn without an end", path: pathVideo, script: config + `
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				50 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				70 s response.start
				80 s response.text.delta {"delta":"A dog"}
				90 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				95 s response.audio.done
				99 s fin`,
			want: `
				turn invalid-output/missing_terminal by=server in?nothing%asked
				turn success/done in?nothing%asked
				session turns=2`,
		},
		{
			name: "the session ends amid a query", path: pathVideo, script: config + `
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				50 s fin`,
			want: `
				turn transport-error/cut in=@10
				session turns=1`,
		},
		{
			name: "sound behind the end", path: pathVideo, script: config + `
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				40 s response.audio.done
				50 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				60 c video.query {"text":"what?"}
				70 s response.start
				80 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				90 s response.audio.done
				99 s fin`,
			want: `
				turn success/done samples=480 jct=30
				turn success/done in=@60 samples=480 ttfa=20
				session turns=2 +unattributed_audio unattributed_chunks=1`,
		},
	})
}

// TestSessionsVideoOut: generated video (trap 27): nothing of it is looked into.
func TestSessionsVideoOut(t *testing.T) {
	runSessions(t, []sessionCase{
		{
			name: "to the end", path: pathVideoOut, script: `1 #q c session.start {"prompt":"a cat","model":"m","format":"m4s"}
				20 s video.start {"request_id":"video_stream-1","format":"m4s","config":{}}
				30 s video.chunk_metadata {"request_id":"video_stream-1","kind":"media","num_frames":8,"byte_length":1000}
				31 s bin bytes:1000
				40 s video.chunk_metadata {"request_id":"video_stream-1","kind":"trailer","num_frames":0,"byte_length":50}
				41 s bin bytes:50
				50 #e s session.done {"request_id":"video_stream-1","chunks":1,"stopped":false}
				51 s fin`,
			want: `
				turn success/done src=session.start in=@1 offsets.t_in=>q jct=49 offsets.t_term=>e ttft? ttfa? audio? server_request_id=video_stream-1 model=m flow=video_out dialect=vllm-omni bytes_down!0
				session turns=1 flow=video_out unattributed_chunks=0`,
		},
		{
			name: "cut amid the media", path: pathVideoOut, script: `1 c session.start {"prompt":"a cat"}
				20 s video.start {"request_id":"video_stream-1"}
				31 s bin bytes:1000
				40 s fin`,
			want: `
				turn transport-error/cut jct=39
				session turns=1`,
		},
		{
			name: "stalled", path: pathVideoOut, script: `1 c session.start {"prompt":"a cat"}
				20 s video.start {"request_id":"video_stream-1"}
				60020 s error {"message":"stalled"}
				60021 s fin`,
			want: `
				turn server-error/server_error
				session turns=1`,
		},
	})
}

// TestVideoOutCountsItsMedia: the bytes of a turn are those of its media too.
func TestVideoOutCountsItsMedia(t *testing.T) {
	c := sessionCase{path: pathVideoOut, script: `1 c session.start {"prompt":"a cat"}
		20 s video.start {"request_id":"video_stream-1"}
		31 s bin bytes:60000
		50 s session.done {"chunks":1,"stopped":false}
		51 s fin`}
	got, _ := c.play(t, c.config(), 0)
	if recs := got.records.records; len(recs) != 1 || recs[0].BytesDown < 60000 {
		t.Errorf("%d records, bytes_down %d, want one with the 60000 of its media", len(recs), recs[0].BytesDown)
	}
}
