# See entry.h.
        .text

# Jumped to where C++ code is done and returns: (%rsp) is the address to return to.
        .globl  auxtrail_enter_at_return
        .hidden auxtrail_enter_at_return
        .type   auxtrail_enter_at_return, @function
auxtrail_enter_at_return:
        .cfi_startproc
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        movl    $39, %eax               # getpid
        syscall
        movl    %eax, %edi
        movl    $186, %eax              # gettid
        syscall
        movl    %eax, %esi
        movl    $5, %edx                # SIGTRAP
        leaq    auxtrail_entry_info(%rip), %r10
        movl    $297, %eax              # rt_tgsigqueueinfo
        syscall
        .globl  auxtrail_entered
        .hidden auxtrail_entered
auxtrail_entered:
        popq    %rax
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size   auxtrail_enter_at_return, .-auxtrail_enter_at_return

# The library's constructor.
        .type   auxtrail_constructor, @function
auxtrail_constructor:
        .cfi_startproc
        endbr64
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    auxtrail_start_process
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        testl   %eax, %eax
        jnz     auxtrail_enter_at_return
        ret
        .cfi_endproc
        .size   auxtrail_constructor, .-auxtrail_constructor
        .section .init_array,"aw",@init_array
        .align  8
        .quad   auxtrail_constructor
        .text

# libc calls it in a forked child.
        .globl  auxtrail_forked_child
        .hidden auxtrail_forked_child
        .type   auxtrail_forked_child, @function
auxtrail_forked_child:
        .cfi_startproc
        endbr64
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    auxtrail_start_child
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        testl   %eax, %eax
        jnz     auxtrail_enter_at_return
        ret
        .cfi_endproc
        .size   auxtrail_forked_child, .-auxtrail_forked_child

# A new thread's first function: goes on at the program's.
        .globl  auxtrail_thread_begin
        .hidden auxtrail_thread_begin
        .type   auxtrail_thread_begin, @function
auxtrail_thread_begin:
        .cfi_startproc
        endbr64
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    auxtrail_start_thread
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        movq    (%rax), %rdi            # the function, its argument, whether to enter
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        movq    8(%rax), %rdi
        cmpq    $0, 16(%rax)
        jne     auxtrail_enter_at_return
        ret
        .cfi_endproc
        .size   auxtrail_thread_begin, .-auxtrail_thread_begin

        .section .note.GNU-stack,"",@progbits
