# See syscall_gate.h. Offsets: thread_state.h (Thread) and stub_frame.h (below the top of the unit's stack).
        .set    STACK_TOP, 0
        .set    SAVED_RSP, 8
        .set    SAVED_MASK, 16
        .set    GATE_RSP, 24
        .set    GATE_NEXT, 32
        .set    GATE_RAX, 40
        .set    RDX, -16
        .set    RBX, -24
        .set    RBP, -32
        .set    RSI, -40
        .set    RDI, -48
        .set    R8, -56
        .set    R9, -64
        .set    R10, -72
        .set    R12, -88
        .set    R13, -96
        .set    R14, -104
        .set    R15, -112
        .set    RT_SIGPROCMASK, 14
        .set    SIG_SETMASK, 2
        # The program's red zone, then 16 bytes for us.
        .set    BELOW, 144

        .text
        .globl  auxtrail_syscall_gate
        .hidden auxtrail_syscall_gate
        .type   auxtrail_syscall_gate, @function
auxtrail_syscall_gate:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, GATE_RSP(%rdi)
        movq    STACK_TOP(%rdi), %rax
        movq    RBX(%rax), %rbx
        movq    RBP(%rax), %rbp
        movq    R12(%rax), %r12
        movq    R13(%rax), %r13
        movq    R14(%rax), %r14
        movq    R15(%rax), %r15
        movq    SAVED_RSP(%rdi), %rax
        movq    GATE_NEXT(%rdi), %rcx
        movq    %rcx, -BELOW(%rax)
        movq    %rdi, 8-BELOW(%rax)
        leaq    -BELOW(%rax), %rsp
        .size   auxtrail_syscall_gate, .-auxtrail_syscall_gate

        # From here on an unwinder may come by, libc's for a cancelled thread: it finds the program's registers
        # and goes on behind its system call, as if a signal had interrupted it there.
        .globl  auxtrail_gate_begin
        .hidden auxtrail_gate_begin
        .type   auxtrail_gate_begin, @function
auxtrail_gate_begin:
        .cfi_startproc
        .cfi_signal_frame
        .cfi_def_cfa %rsp, BELOW
        .cfi_offset %rip, -BELOW
        .cfi_same_value %rbx
        .cfi_same_value %rbp
        .cfi_same_value %r12
        .cfi_same_value %r13
        .cfi_same_value %r14
        .cfi_same_value %r15
        leaq    SAVED_MASK(%rdi), %rsi
        movl    $SIG_SETMASK, %edi
        xorl    %edx, %edx
        movl    $8, %r10d
        movl    $RT_SIGPROCMASK, %eax
        syscall
        .globl  auxtrail_gate_open
        .hidden auxtrail_gate_open
auxtrail_gate_open:
        movq    8(%rsp), %r11
        movq    GATE_RAX(%r11), %rax
        movq    STACK_TOP(%r11), %r11
        movq    RDI(%r11), %rdi
        movq    RSI(%r11), %rsi
        movq    RDX(%r11), %rdx
        movq    R10(%r11), %r10
        movq    R8(%r11), %r8
        movq    R9(%r11), %r9
        .globl  auxtrail_gate_syscall
        .hidden auxtrail_gate_syscall
auxtrail_gate_syscall:
        syscall
        .globl  auxtrail_gate_after
        .hidden auxtrail_gate_after
auxtrail_gate_after:
        movq    8(%rsp), %r11
        movq    %rax, GATE_RAX(%r11)
        .globl  auxtrail_gate_saved
        .hidden auxtrail_gate_saved
auxtrail_gate_saved:
        leaq    SAVED_MASK(%r11), %rdx
        leaq    auxtrail_window_mask(%rip), %rsi
        movl    $SIG_SETMASK, %edi
        movl    $8, %r10d
        movl    $RT_SIGPROCMASK, %eax
        syscall
        .globl  auxtrail_gate_end
        .hidden auxtrail_gate_end
auxtrail_gate_end:
        movq    8(%rsp), %rdi
        .cfi_endproc
        .size   auxtrail_gate_begin, .-auxtrail_gate_begin
        movq    GATE_RSP(%rdi), %rsp
        movq    $0, GATE_RSP(%rdi)
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret

        .section .note.GNU-stack,"",@progbits
