package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/glamour/v2"
	"charm.land/lipgloss/v2"

	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

// Interactive runs the chat in a terminal until the user leaves (Ctrl-D, /quit, Ctrl-C) or ctx ends. Ctrl-C while an
// answer is on its way stops that answer; a second one leaves. Questions
// that are written while an answer is on its way wait for their turn in the session, as everywhere.
func (c Conversation) Interactive(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newScreen(ctx, c)
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	m.send = p.Send
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// styles of the screen.
type styles struct{ user, tool, dim, fail lipgloss.Style }

func newStyles() styles {
	return styles{
		user: lipgloss.NewStyle().Bold(true),
		tool: lipgloss.NewStyle().Foreground(lipgloss.Cyan),
		dim:  lipgloss.NewStyle().Faint(true),
		fail: lipgloss.NewStyle().Foreground(lipgloss.Red),
	}
}

// screen is the state of the chat. Finished messages are printed above; the view holds what is still changing.
type screen struct {
	ctx    context.Context //nolint:containedctx // the life of the program, which calls methods without one
	talk   Conversation
	send   func(tea.Msg)
	input  textinput.Model
	styles styles
	width  int

	// live is the text of the answer that is being written, waiting the number of questions without an answer.
	live    strings.Builder
	tool    string
	waiting int
	leaving bool

	// Lines go above the view one at a time: commands of the program run side by side and would swap them.
	lines    []string
	printing bool
}

const promptText = "› "

func newScreen(ctx context.Context, talk Conversation) *screen {
	input := textinput.New()
	input.Prompt = promptText
	input.Placeholder = "write a message, /help for commands"
	input.Focus()
	return &screen{ctx: ctx, talk: talk, input: input, styles: newStyles(), width: 80}
}

// Messages of the program.
type (
	eventMsg struct{ client.Event }
	askedMsg struct {
		last client.Event
		err  error
	}
	printedMsg struct{}
	stoppedMsg struct{ err error }
)

// print puts text above the view, behind what was printed before.
func (s *screen) print(text string) tea.Cmd {
	s.lines = append(s.lines, text)
	if s.printing {
		return nil
	}
	return s.printNext()
}

func (s *screen) printNext() tea.Cmd {
	s.printing = len(s.lines) > 0
	if !s.printing {
		return nil
	}
	text := strings.Join(s.lines, "\n")
	s.lines = nil
	return tea.Sequence(tea.Println(text), func() tea.Msg { return printedMsg{} })
}

func (s *screen) Init() tea.Cmd { return textinput.Blink }

func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width = msg.Width
		s.input.SetWidth(max(1, msg.Width-len(promptText)-1))
		return s, nil
	case tea.KeyPressMsg:
		return s.key(msg)
	case eventMsg:
		return s, s.event(msg.Event)
	case askedMsg:
		return s, s.answered(msg)
	case printedMsg:
		return s, s.printNext()
	case stoppedMsg:
		if msg.err == nil { // the answer that is stopped says so itself
			return s, nil
		}
		return s, s.print(s.styles.fail.Render("  " + msg.err.Error()))
	default:
		var cmd tea.Cmd
		s.input, cmd = s.input.Update(msg)
		return s, cmd
	}
}

func (s *screen) key(msg tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch msg.String() {
	case "ctrl+d":
		return s, tea.Quit
	case "ctrl+c":
		if s.leaving || s.waiting == 0 {
			return s, tea.Quit
		}
		s.leaving = true
		return s, tea.Batch(s.print(s.styles.dim.Render("  stopping; Ctrl-C again leaves")), s.stop())
	case "enter":
		return s, s.submit()
	default:
		s.leaving = false
		var cmd tea.Cmd
		s.input, cmd = s.input.Update(msg)
		return s, cmd
	}
}

func (s *screen) submit() tea.Cmd {
	text := strings.TrimSpace(s.input.Value())
	if text == "" {
		return nil
	}
	s.input.Reset()
	if text == "/quit" || text == "/exit" {
		return tea.Quit
	}
	s.waiting++
	return tea.Batch(s.print(s.styles.user.Render(promptText+text)), s.ask(text))
}

// ask runs outside the event loop; events come back as messages.
func (s *screen) ask(text string) tea.Cmd {
	return func() tea.Msg {
		last, err := s.talk.Ask(s.ctx, text, func(e client.Event) { s.send(eventMsg{e}) })
		return askedMsg{last: last, err: err}
	}
}

// stop ends the answer that is on its way, without waiting for its turn.
func (s *screen) stop() tea.Cmd {
	return func() tea.Msg {
		_, err := s.talk.Ask(s.ctx, "/stop", func(client.Event) {})
		return stoppedMsg{err: err}
	}
}

func (s *screen) event(e client.Event) tea.Cmd {
	switch e.Kind {
	case client.Text:
		s.live.WriteString(e.Text)
	case client.Reset:
		s.live.Reset()
	case client.Step:
		return s.flush()
	case client.ToolStarted:
		s.tool = e.Tool
	case client.ToolFinished:
		s.tool = ""
		return s.print(s.styles.tool.Render("  ▸ " + e.Tool + " " + e.Outcome))
	default:
	}
	return nil
}

// flush prints the text so far above and begins anew.
func (s *screen) flush() tea.Cmd {
	text := s.live.String()
	s.live.Reset()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return s.print(strings.TrimRight(s.markdown(text), "\n"))
}

func (s *screen) answered(msg askedMsg) tea.Cmd {
	s.waiting--
	s.tool = ""
	s.live.Reset()
	if msg.err != nil {
		return s.print(s.styles.fail.Render("  " + msg.err.Error()))
	}
	text := strings.TrimRight(s.markdown(msg.last.Text), "\n")
	if msg.last.Kind != client.Done {
		text += "\n" + s.styles.dim.Render(fmt.Sprintf("  (%s)", msg.last.Kind))
	}
	return s.print(text + "\n")
}

// markdown renders text for the terminal; text that cannot be rendered is shown as it is.
func (s *screen) markdown(text string) string {
	r, err := glamour.NewTermRenderer(glamour.WithStandardStyle("notty"), glamour.WithWordWrap(max(20, s.width-2)))
	if err != nil {
		return text
	}
	rendered, err := r.Render(text)
	if err != nil {
		return text
	}
	return strings.TrimLeft(rendered, "\n")
}

func (s *screen) View() tea.View {
	var v strings.Builder
	if s.live.Len() > 0 {
		v.WriteString(lipgloss.NewStyle().Width(s.width).Render(s.live.String()) + "\n")
	}
	switch {
	case s.tool != "":
		v.WriteString(s.styles.tool.Render("  ▸ "+s.tool+" …") + "\n")
	case s.waiting > 0 && s.live.Len() == 0:
		v.WriteString(s.styles.dim.Render("  thinking …") + "\n")
	}
	v.WriteString(s.input.View())
	return tea.NewView(v.String())
}
