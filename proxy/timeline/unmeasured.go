package timeline

// unmeasured gives every null of the record its reason.
func (b *Builder) unmeasured(r *Record) {
	u := r.Unmeasured
	put := func(name string, null bool, reason string) {
		if null {
			u[name] = reason
		}
	}
	came := b.missing()
	points, offsets := pointers(&r.Points), pointers(&r.Offsets)
	for p := range nPoints {
		put("points."+pointNames[p], *points[p] == nil, b.noPoint(p, came))
		reason := "no byte completes it"
		if *points[p] == nil {
			reason = u["points."+pointNames[p]]
		}
		put("offsets."+pointNames[p], *offsets[p] == nil, reason)
	}
	put("ttft_ms", r.TTFTMS == nil, b.noPoint(pText, came))
	put("ttfa_ms", r.TTFAMS == nil, b.noPoint(pAudio, came))
	put("ttfaudible_ms", r.TTFAudibleMS == nil, b.noPoint(pAudible, came))
	put("jct_ms", r.JCTMS == nil, b.noPoint(pTerm, came))
	if b.turn != nil && b.at[pIn].mono == 0 {
		put("jct_ms", r.JCTMS == nil, "nothing asked for it: there is no t_in")
	}
	put("reasoning.first_ms", r.Reasoning != nil && r.Reasoning.FirstMS == nil, "nothing asked for it: there is no t_in")
	put("t_in_alternatives", r.TInAlternatives == nil, "no other event could be taken for t_in")
	put("t_in_server_offset", r.TInServerOffset == nil, "t_in is no event of the server")
	b.unmeasuredTurn(r, put)
	noSound := "no samples counted"
	if r.Audio == nil {
		noSound = "no audio came"
	}
	if b.turn != nil && b.at[pIn].mono == 0 && r.AudioS != nil {
		noSound = "nothing asked for it: there is no t_in"
	}
	for name, null := range map[string]bool{"rtf": r.RTF == nil, "xrt": r.XRT == nil, "audio_s": r.AudioS == nil} {
		put(name, null, noSound)
	}
	b.unmeasuredAudible(r, put, noSound)
	put("tpot_ms", r.TPOTMS == nil, "fewer than two text units")
	put("reasoning", r.Reasoning == nil, "no reasoning text came")
	for name, null := range map[string]bool{
		"text_units": r.TextUnits == nil, "text_unit": r.TextUnit == nil, "text_bytes": r.TextBytes == nil, "text_sha256": r.TextSHA256 == nil,
	} {
		put(name, null, came)
	}
	put("declared_tokens", r.DeclaredTokens == nil, "the server declares none")
	put("audio", r.Audio == nil, "no audio came")
	put("audio_gap_ms", r.AudioGapMS == nil, "fewer than two chunks that arrive by themselves")
	put("playback", r.Playback == nil, "no stream of countable audio")
	put("incremental", r.Incremental == nil, "no audio came")
	b.unmeasuredSound(r, put)
	b.unmeasuredRest(r, put)
}

// missing is the general reason for what an exchange did not show.
func (b *Builder) missing() string {
	switch {
	case b.unreadType():
		return "bodies of this type are not read"
	case b.analysis != "full" && b.analysisReason != "":
		return "analysis " + b.analysis + ": " + b.analysisReason
	case !b.answered():
		return "no answer came"
	}
	return "not seen"
}

func (b *Builder) noPoint(p point, general string) string {
	if b.analysis != "full" || !b.answered() && p > pHdr && p != pClose {
		return general
	}
	if b.turn != nil {
		if reason := b.noTurnPoint(p); reason != "" {
			return reason
		}
	}
	switch p {
	case pBody:
		return "the request did not end"
	case pUp:
		if b.id.Replay {
			return "a capture holds reads alone"
		}
		return "the request was not written in full"
	case pText:
		return "no text came"
	case pAudioEvent:
		return "no audio event came"
	case pAudio:
		if b.snd != nil && b.snd.opaque > 0 {
			return "codec: samples are not counted"
		}
		if b.snd == nil || b.snd.bytes == 0 {
			return "no audio came"
		}
		return "less audio than is playable"
	case pAudible:
		if b.snd != nil && b.snd.opaque > 0 {
			return "codec: samples are not looked at"
		}
		return "no sound above the silence threshold"
	case pTerm:
		return "no end marker came"
	case pClose:
		return "the connection stayed open"
	default:
		return general
	}
}

// noTurnPoint is the reason that only turns have.
func (b *Builder) noTurnPoint(p point) string {
	switch {
	case p == pHdr:
		return "a turn has no head"
	case p == pIn:
		return "nothing asked for it"
	case p == pBody:
		return "the input's end was not seen"
	case p == pUp && !b.id.Replay:
		return "what asked for it was not seen to be written"
	case p == pClose:
		return "the session went on"
	case p == pTerm || b.at[p].mono == 0:
		return ""
	case b.at[pIn].mono == 0:
		return "nothing asked for it: there is no t_in"
	}
	return "it came ahead of t_in"
}

func (b *Builder) unmeasuredSound(r *Record, put func(string, bool, string)) {
	a := r.Audio
	if a == nil {
		return
	}
	reason := "no audio held samples"
	if b.snd.opaque > 0 {
		reason = "codec: samples are not counted"
	}
	if b.analysis != "full" {
		reason = b.missing()
	}
	put("audio.container", a.Container == nil, reason)
	put("audio.encoding", a.Encoding == nil, reason)
	put("audio.samples", a.Samples == nil, reason)
	if a.Samples != nil && b.cfg.Hash == "off" {
		put("audio.sha256", a.SHA256 == nil, "hash_audio is off")
	} else {
		put("audio.sha256", a.SHA256 == nil, reason)
	}
	put("audio.channels", a.Channels == nil, reason)
	put("audio.channels_source", a.ChannelsSource == nil, reason)
	if a.Samples != nil {
		reason = "the wire does not say"
	}
	put("audio.sample_rate", a.SampleRate == nil, reason)
	put("audio.sample_rate_source", a.SampleRateSource == nil, reason)
	put("audio.assumed_sample_rate", a.AssumedSampleRate == nil, "nothing had to be assumed")
	put("audio.declared_samples", a.DeclaredSamples == nil, "nothing declares a total")
	put("audio.declared_source", a.DeclaredSource == nil, "nothing declares a total")
	put("audio.chunk_unit", a.ChunkUnit == nil, "no audio came")
	put("playback.vllm_omni", r.Playback != nil && r.Playback.VLLMOmni == nil, "one arrival alone: not applicable")
}

func (b *Builder) unmeasuredTurn(r *Record, put func(string, bool, string)) {
	put("input", r.Input == nil, "no sound of the client was told to belong to it")
	put("cancel", r.Cancel == nil, "nobody asked for it to stop")
	if r.Input != nil {
		put("input.pace", r.Input.Pace == nil, "one message alone")
	}
	if r.Cancel != nil {
		put("cancel.to_silence_ms", r.Cancel.ToSilenceMS == nil, "no sound came after it")
	}
}

func (b *Builder) unmeasuredAudible(r *Record, put func(string, bool, string), noSound string) {
	switch {
	case b.cfg.Checks.Off:
		noSound = "the checks are off"
	case r.AudioS != nil && r.AudibleS == nil:
		noSound = "nothing is heard"
	}
	put("audible_s", r.AudibleS == nil, noSound)
	if r.AudibleS != nil {
		noSound = "nothing asked for it: there is no t_in"
	}
	put("rtf_audible", r.RTFAudible == nil, noSound)
}

// unhashed says why the request's body has no hash.
func (b *Builder) unhashed() string {
	switch {
	case b.turn != nil:
		return "a turn has no body"
	case b.tunnel:
		return "a tunnel has no body"
	case b.at[pBody].mono == 0:
		return "the request did not end"
	case b.analysis == "truncated":
		return b.missing()
	}
	return "the request has no body"
}

func (b *Builder) unmeasuredRest(r *Record, put func(string, bool, string)) {
	general := b.missing()
	put("server_request_id", r.ServerRequestID == nil, "the answer names none")
	put("session_id", r.SessionID == nil, "no session")
	put("turn", r.Turn == nil, "no session")
	put("dialect_variant", r.DialectVariant == nil, "no form of a known flow")
	put("method", r.Method == nil, general)
	put("path", r.Path == nil, general)
	put("status", r.Status == nil, general)
	unread := b.requestUnread
	if unread == "" {
		unread = "the request does not say"
	}
	put("model", r.Model == nil, unread)
	put("modalities", r.Modalities == nil, unread)
	put("request_sha256", r.RequestSHA256 == nil, b.unhashed())
	put("input_chars", r.InputChars == nil, unread)
	put("t_in_wall_ns", r.TInWallNS == nil, "the capture holds no wall clock")
	if b.turn != nil {
		put("t_in_source", r.TInSource == nil, "nothing asked for it")
	}
	put("t_in_source", r.TInSource == nil && b.turn == nil, general)
	put("analysis_reason", r.AnalysisReason == nil, "analysis is full")
	noDelay := "no chunk was written"
	if b.id.Replay {
		noDelay = "a capture holds reads alone"
	}
	put("own_delay_us", r.OwnDelayUS == nil, noDelay)
	put("client_wait_ms", r.ClientWaitMS == nil, "a capture holds reads alone")
	put("stages", r.Stages == nil, "no stage probes")
	put("transfers", r.Transfers == nil, "no stage probes")
	put("critical_path", r.CriticalPath == nil, "no stage probes")
	put("cancel_quiesce_ms", r.CancelQuiesceMS == nil, "no stage probes")
	put("retry_of", r.RetryOf == nil, "not a retry as far as is known")
}
