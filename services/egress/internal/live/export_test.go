package live

// Shows is how many runs are shown.
func (w *Watcher) Shows() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}
